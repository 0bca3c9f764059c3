"""All pages of the console, in the order of the menu."""

from __future__ import annotations

from proxy.admin.console.calls import Page
from proxy.admin.console.overview import overview
from proxy.admin.entry.rights import OWN

PAGES = (Page(path="/", title="Overview", template="overview.html", view=overview, need=OWN),)
