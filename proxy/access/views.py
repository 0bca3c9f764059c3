"""What operators are shown of who did what."""

from __future__ import annotations

from broker.views import View


class AuditEntry(View, frozen=True, kw_only=True):
    """One line of the audit trail.

    Attributes:
        number: Lines of a trail are numbered; a gap shows that one is missing.
        at_ms: When.
        what: A change as `admin_change` names it, `sign_in`, `sign_out`; of a denial the request or the method.
        outcome: `asked` (before a change is begun), then `done`, `refused` or `failed`; `denied`.
        principal: Who; empty where nothing says who may do what.
        way: How that is known: `token`, `jwt`, `certificate`, `network`, `anonymous`, or `adminToken`.
        proof: Id of the token, or name of its key; empty without one.
        address: Address of the client.
        of: For an outcome: number of the line with the request; else 0.
        resource: Topic, group or the like, of a denial; empty else.
        asked: The body of the change as JSON, cut where it is long; empty for none.
        why: Why it was refused, failed or denied; empty else.
        count: Number of events that this line represents.
    """

    number: int
    at_ms: int
    what: str
    outcome: str
    principal: str
    way: str
    address: str
    proof: str = ""
    of: int = 0
    resource: str = ""
    asked: str = ""
    why: str = ""
    count: int = 1
