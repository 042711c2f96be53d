"""The Omnibus application: window, command line and what they need. Knows the engine by its public face only; never imports torch."""
