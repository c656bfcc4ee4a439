"""The order between streams: clocks, the memory that each piece of work touched, and the waits that follow."""
