"""Tools for the makers of pyddmq: pages made from the code, counts of lines. Not in the wheel; may import anything."""
