"""Source: a text, a file or a packaged template, with what it includes."""
