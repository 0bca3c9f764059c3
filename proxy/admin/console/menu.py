"""All pages of the console, in the order of the menu."""

from __future__ import annotations

from proxy.admin.console.calls import ConsolePage
from proxy.admin.console.dead_letters import PARAMETERS as LETTER_PARAMETERS
from proxy.admin.console.dead_letters import dead_letters
from proxy.admin.console.group import group, groups
from proxy.admin.console.message import PARAMETERS as MESSAGE_PARAMETERS
from proxy.admin.console.message import message
from proxy.admin.console.node import audit, clients, configuration, node
from proxy.admin.console.overview import overview
from proxy.admin.console.topics import topic, topics
from proxy.admin.console.waiting import PARAMETERS as WAITING_PARAMETERS
from proxy.admin.console.waiting import waiting
from proxy.admin.entry.rights import ADMINISTER, ALL, GROUP, OWN, TOPIC

PAGES = (
    ConsolePage(path="/", title="Overview", view=overview, need=OWN),
    ConsolePage(path="/groups", title="Groups", view=groups, need=OWN, parameters=("q", "page")),
    ConsolePage(
        path="/group",
        title="Group",
        view=group,
        need=GROUP,
        parameters=("group", "span"),
        named_by="group",
        menu_of="/groups",
    ),
    ConsolePage(path="/topics", title="Topics", view=topics, need=OWN, parameters=("q", "page")),
    ConsolePage(
        path="/topic",
        title="Topic",
        view=topic,
        need=TOPIC,
        parameters=("topic", "text"),
        named_by="topic",
        menu_of="/topics",
        live=False,
    ),
    ConsolePage(path="/message", title="Messages", view=message, need=OWN, parameters=MESSAGE_PARAMETERS, live=False),
    ConsolePage(
        path="/dead-letters",
        title="Dead letters",
        view=dead_letters,
        need=OWN,
        parameters=LETTER_PARAMETERS,
        named_by="group",
        live=False,
    ),
    ConsolePage(path="/waiting", title="Waiting", view=waiting, need=ALL, parameters=WAITING_PARAMETERS, live=False),
    ConsolePage(path="/clients", title="Clients", view=clients, need=ALL, parameters=("q",)),
    ConsolePage(path="/node", title="Node", view=node, need=ALL),
    ConsolePage(
        path="/configuration", title="Configuration", view=configuration, need=ALL, menu_of="/node", live=False
    ),
    ConsolePage(path="/audit", title="Audit", view=audit, need=ADMINISTER, parameters=("q",)),
)
