"""The imports of a file that belongs to a project, or that needs modules not installed here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from traceview.headless.project.lazy_packages import LazyPackages
from traceview.headless.project.package import Package
from traceview.headless.project.stand_ins import MissingModules

_MOST_NAMED = 8


@dataclass
class ProjectImports:
    """The import hooks of one worker process; `install` puts them in place for good."""

    missing: MissingModules = field(default_factory=MissingModules)
    packages: LazyPackages | None = None

    def install(self, package: Package | None) -> None:
        """Make imports find the package's own files, and stand-ins for missing modules."""
        if package:
            self.packages = LazyPackages(package)
            for name in [n for n in sys.modules if n.partition(".")[0] == package.top]:
                del sys.modules[name]
            sys.meta_path.insert(0, self.packages)
            # At the end, so that other folders beside the package shadow nothing.
            sys.path.append(str(package.root))
        sys.meta_path.append(self.missing)

    @property
    def not_installed(self) -> tuple[str, ...]:
        """The modules that have a stand-in."""
        return tuple(self.missing.names)

    def notes(self) -> Iterator[str]:
        """Lines on modules that stand-ins replaced."""
        if self.missing.names:
            yield f"not installed, and stood in for: {_listed(self.missing.names)}"
        failed = self.packages.failed if self.packages else {}
        if failed:
            each = [f"{name} ({error})" for name, error in failed.items()]
            yield f"raised when imported, and stood in for: {_listed(each, 3)}"


def _listed(names: list[str], most: int = _MOST_NAMED) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
