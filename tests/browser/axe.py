"""What axe-core finds wrong with a page for those who cannot see it, or not well."""

from __future__ import annotations

from playwright.sync_api import Page

from examples.local_service import ROOT

AXE = ROOT / "api" / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"

Faults = list[tuple[str, list[str]]]


def serious_faults(page: Page) -> Faults:
    """Name and first elements of each serious or critical fault, in light and in dark; none is asked for."""
    if not page.evaluate("'axe' in window"):
        # Evaluated by the debugger, which the page's policy against foreign scripts does not bind.
        page.evaluate(AXE.read_text())
    found: Faults = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        answer = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious = [fault for fault in answer["violations"] if fault["impact"] in ("serious", "critical")]
        found += [
            (f"{fault['id']} in {scheme}", [node["html"][:200] for node in fault["nodes"][:3]]) for fault in serious
        ]
    return found
