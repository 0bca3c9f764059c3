"""The console: pages of the admin port for people, rendered on the server (docs/console.md).

How to add a page:

1. Write one module, such as `overview`, with an async function from a `PageCall` to one view record
   (`broker.views.View`). The function reads what the JSON API reads (`proxy.operate.answers`, `lookups`), so page and
   CLI cannot differ.
2. Write one template, `templates/NAME.html`. It renders the record, which it sees as `view`, and nothing else.
   Autoescape is on; the macros of `templates/parts.html` make tables, chips, ages and buttons.
3. Add one `ConsolePage` row to `proxy.admin.console.menu.PAGES`: path, title, right, query parameters and section of
   the menu. The row adds the route, its right, its entry in the menu, its fragment and its place in the access tests.

What the shell does for each page: the first request returns the whole page, which needs no script. While the tab is
visible, `static/console.js` requests the fragment every 2 s (`?again=1`, which does not keep a session alive), with the
ETag of the fragment before. A fragment is computed once in 2 s for each set of rights, and has no nonce and no htmx
attribute, so it can be shared; htmx attributes are in `templates/shell.html` alone.

A button is `parts.change(...)`: a path of the API, the JSON body, the command that does the same, and whether the route
has a dry run. `static/console.js` shows the dry run, asks, and sends the body. Without scripts the command is shown.
"""
