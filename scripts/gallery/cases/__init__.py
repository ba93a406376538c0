"""One file per case, named like its folder in reports/."""
