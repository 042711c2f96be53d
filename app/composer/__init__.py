"""Where the next message is written."""

from app.composer.composer import Composer

__all__ = ["Composer"]
