"""Commands about consumption lag: what a node says of it, its alarms and objectives, and reports from its journals.

One module for each; what needs Spark is imported when it is asked for.
"""
