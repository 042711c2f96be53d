"""Loads, demonstrations and measurements of the engine. They use it as any other caller does; the engine itself never imports them."""
