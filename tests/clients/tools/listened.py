"""Members of groups that are other programs: started, asked to leave, killed, and listened to.

What they say becomes what all members of the churn tests say, by a function of the program's own.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.clients.groups.churn_members import Event, Life, News, RunningMember
from tests.clients.groups.members import Spec

TERMINATED = 128 + signal.SIGTERM
Translate = Callable[[dict[str, Any], Life], Event | None]
"""What one line means, after all that the member has said before; None for one that says nothing new."""


class ListenedMember(RunningMember):
    """A member whose program says in JSON what it does, in words of its own."""

    def __init__(self, spec: Spec, command: Sequence[str], translate: Translate, news: News, directory: Path) -> None:
        def understand(line: bytes, life: Life) -> Event | None:
            # A kill may leave half a line, and what Java says of itself is not JSON.
            if line.startswith(b"{") and line.endswith(b"}\n"):
                return translate(json.loads(line), life)
            return None

        super().__init__(spec, command, understand, news, directory)

    def join(self) -> int:
        """Wait for its end; the exit code, or 0 for one that ended by the signal that asked it to, and said so."""
        code = super().join()
        return 0 if code == TERMINATED and self.life.tally["left"] else code
