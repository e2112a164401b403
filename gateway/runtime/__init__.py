"""What one gateway process keeps in memory: caches with an invalidation rule, queues with bounds.

Nothing here matters after a crash: money and keys are PostgreSQL's.
"""
