"""Source stage: a text, a file or a packaged template, with the headers that it includes."""
