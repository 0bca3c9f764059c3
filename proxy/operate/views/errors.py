"""Refusals."""

from __future__ import annotations

from broker.views import View


class ErrorView(View, frozen=True, kw_only=True):
    """Why a request was refused.

    Attributes:
        status: HTTP status.
        message: A sentence that says why, and what to do.
    """

    status: int
    message: str


class ErrorAnswer(View, frozen=True, kw_only=True):
    """A refusal.

    Attributes:
        error: Why.
    """

    error: ErrorView
