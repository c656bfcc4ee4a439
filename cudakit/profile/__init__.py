"""Observe what ran: traces, timelines, timers, and dependencies between streams."""
