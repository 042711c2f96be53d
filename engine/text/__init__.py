"""From messages to token ids and back: chat templates, encoding, incremental decoding, stop strings. No Qt, no torch."""
