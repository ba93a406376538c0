"""Make the pages of the gallery from the kept recordings.

    python reports/make.py                         # all cases
    python reports/make.py cdist-breakdown         # one
    python reports/make.py --record gelu-five-ways # record first: needs a GPU and nsys

Of each case it writes what stands between the marks of its README.md, its picture lead.svg, and the
whole reports as HTML and JSON, in the case's folder. A case whose recording is missing is left out,
and the exit status is then 1.
"""

import argparse
import sys

from gallery import REPORTS, Case, cases


def write(name: str, case: Case) -> None:
    folder = REPORTS / name
    said = case.said()
    page = folder / "README.md"
    files = {
        page.name: case.filled(page.read_text(), said),
        "lead.svg": case.picture(said),
        **dict(case.reports(said)),
    }
    for file, text in files.items():
        (folder / file).write_text(text)
    print(f"{name}: wrote {', '.join(files)}")


def main() -> None:
    known = cases()
    parser = argparse.ArgumentParser(description="Make the pages of the gallery.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of: {', '.join(known)}")
    parser.add_argument("--record", action="store_true", help="record first; needs a GPU and nsys")
    given = parser.parse_args()
    unknown = set(given.cases) - set(known)
    if unknown:
        parser.error(f"no case is named {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    left_out = 0
    for name in given.cases or known:
        case = known[name]
        for recording in case.recordings.values() if given.record else ():
            recording.record()
        if case.missing:
            left_out += 1
            print(f"{name}: left out, no {', '.join(case.missing)}; try --record", file=sys.stderr)
        else:
            write(name, case)
    sys.exit(1 if left_out else 0)


if __name__ == "__main__":
    main()
