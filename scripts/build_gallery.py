"""Build the reports of the gallery, and update its pages, from the kept recordings.

    python scripts/build_gallery.py                         # all cases
    python scripts/build_gallery.py cdist-breakdown         # one
    python scripts/build_gallery.py --update                # rewrite reports/ as well
    python scripts/build_gallery.py --record gelu-five-ways # record first; needs a GPU and nsys

Writes the HTML and JSON reports of each case to build/gallery/CASE. With --update it also rewrites
the text between the marks of reports/CASE/README.md, and reports/CASE/lead.svg. A case whose
recording is missing is skipped, and the exit status is then 1.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from gallery.case import REPORTS, Case, RecordingReport, all_cases
from gallery.recording import REPOSITORY

OUT = REPOSITORY / "build" / "gallery"


def build(
    name: str, case: Case, reports: Mapping[str, RecordingReport], out: Path, update: bool
) -> None:
    """Write the reports of a case to out/NAME and, with `update`, its page and picture."""
    files = {out / name / file: text for file, text in case.files(reports)}
    if update:
        page = REPORTS / name / "README.md"
        files[page] = case.fill(page.read_text("utf-8"), reports)
        files[page.with_name("lead.svg")] = case.picture(reports)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        print(f"Wrote {path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path}")


def main() -> None:
    known = all_cases()
    parser = argparse.ArgumentParser(description="Build the reports of the gallery.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of: {', '.join(known)}")
    parser.add_argument("--update", action="store_true", help="rewrite the pages in reports/ too")
    parser.add_argument("--record", action="store_true", help="record first; needs a GPU and nsys")
    parser.add_argument("--out", type=Path, default=OUT, help="default: build/gallery")
    args = parser.parse_args()
    unknown = set(args.cases) - set(known)
    if unknown:
        parser.error(f"unknown case {', '.join(sorted(unknown))}; cases: {', '.join(known)}")
    skipped = 0
    for name in args.cases or known:
        case = known[name]
        for recording in case.recordings.values() if args.record else ():
            recording.record()
        if case.missing:
            skipped += 1
            print(f"{name}: skipped, no {', '.join(case.missing)}; try --record", file=sys.stderr)
        else:
            build(name, case, case.analyze(), args.out, args.update)
    sys.exit(1 if skipped else 0)


if __name__ == "__main__":
    main()
