"""Measurements of what a person sees. Those of the engine are in engine/bench; `omnibus bench NAME` knows both."""
