"""Launch stage: kernel, configuration and arguments → work on a stream, checked and in order."""
