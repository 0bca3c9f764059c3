"""`pyddmq demo order`: two riders, one of whom hangs, in order by key and in order by queue lock."""
