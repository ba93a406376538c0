"""Build the source distribution and all wheels into dist/, and check them: make dist"""

import sys

from packages.build import REPOSITORY, BuildError, build_all
from packages.check import problems


def main() -> None:
    """Print the files with their sizes; exit with status 1 and the problems if there are any."""
    try:
        files = build_all(REPOSITORY / "dist")
    except BuildError as error:
        sys.exit(f"build_packages: {error}")
    if wrong := problems(files):
        sys.exit("\n".join(f"build_packages: {each}" for each in wrong))
    for file in files:
        print(f"Wrote dist/{file.name} ({file.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
