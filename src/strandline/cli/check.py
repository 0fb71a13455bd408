"""`strandline check`: is everything in order?"""

from __future__ import annotations

import click

from strandline.cli.output import emit_json, say
from strandline.cli.stores import json_option, several, show_rows, size, storage_of, store_argument


@click.command()
@store_argument
@click.option("--repair", is_flag=True, help="Delete objects that are proved unreachable.")
@json_option
def check(store: str, repair: bool, as_json: bool) -> int:
    """Verifies every checksum and every invariant of STORE. Exits with 0 if all is well, 1 if not, 2 on trouble.

    \b
    Example:
      strandline check shop
    """
    from strandline.pages import check as check_pages

    report = check_pages(storage_of(store), repair=repair)
    if as_json:
        emit_json(
            {
                "ok": report.ok,
                "objects": report.objects,
                "bytes": report.bytes,
                "findings": [{"invariant": f.invariant, "where": f.where, "what": f.what} for f in report.findings],
                "unreachable": report.unreachable,
                "removed": report.removed,
            }
        )
        return 0 if report.ok else 1
    if report.findings:
        show_rows(
            ("invariant", "where", "what"),
            [(one.invariant or "checksum", one.where, one.what) for one in report.findings],
        )
    if report.removed:
        say(f"{len(report.removed):,} unreachable objects were deleted.")
    if report.unreachable:
        say(f"{len(report.unreachable):,} objects are unreachable; --repair deletes them: {report.unreachable[0]}, …")
    if report.ok:
        say(f"All is well: {several(report.objects, 'page')}, {size(report.bytes)}.")
    return 0 if report.ok else 1
