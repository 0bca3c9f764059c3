"""Rules of consumption lag: from samples of one queue to figures, a status, a cause and advice. See docs/lag-rules.md.

Pure: nothing here reads a clock, a file or a node. A rule over single values is written once, as a `RuleExpression`
(`lag.rules.expression`), and run over plain numbers here and over Spark columns in `lag.spark`. What walks a window
(`lag.rules.facts`) has two forms, held together by one table of cases. No SQL enters this folder.
"""
