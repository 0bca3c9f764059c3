"""Pages without the shell: to sign in, and refusals. They need no right and no script."""

from __future__ import annotations

from proxy.admin.console.templating import environment


def sign_in(*, problem: str = "", is_off: bool = False) -> str:
    """Return the page to sign in by a token.

    Args:
        problem: Why signing in failed; empty for none.
        is_off: Whether signing in is not offered here.
    """
    return environment().get_template("sign_in.html").render(problem=problem, is_off=is_off)


def refusal(status: int, text: str, *, may_sign_in: bool = False) -> str:
    """Return the page of a refused request."""
    return environment().get_template("refusal.html").render(status=status, text=text, may_sign_in=may_sign_in)
