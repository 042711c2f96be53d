"""The model itself: reading it from files, running it, sampling from it. Modules here import torch only when they are used."""
