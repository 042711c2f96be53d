"""Model files on this machine: where they live, how they get here whole, and how a change in them is noticed. No torch, no Qt."""
