"""What a store runs on, whatever it stores: the seams for time and disk, the real disk, steps, counters, log lines.

Nothing here knows a record, a queue or a topic.
"""
