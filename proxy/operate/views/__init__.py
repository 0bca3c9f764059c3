"""What is answered on the admin port, as records: views of a node, and results of changes (`broker.views`).

Modules here import records alone, since commands of the terminal import them: those of the broker's and of groups' are
in `broker.views` and `upstream.views`.
"""
