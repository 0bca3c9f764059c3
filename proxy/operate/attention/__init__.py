"""What needs attention: facts of a node's troubles, rules over them and over the views, and the kinds of findings."""
