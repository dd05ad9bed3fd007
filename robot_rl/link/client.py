"""The actor's end of the link: a thread that replicates the store and fetches weights.

The control loop never waits for this thread. Rows go into the store (`StoreWriter.put`), the thread
reads them there through its own connection; weights and status are read from memory.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from robot_rl.errors import LinkError, RobotRLError, StoreError
from robot_rl.link.auth import Keys
from robot_rl.link.config import LinkConfig
from robot_rl.link.frames import Scalar
from robot_rl.link.session import LinkSession
from robot_rl.spec import Spec
from robot_rl.store.store import Store
from robot_rl.types import ONLY_ACTOR, Weights

log = logging.getLogger(__name__)

ROOM_S = 0.1  # between two small removals from the store: at most 40 MB/s
LOOK_S = 1.0  # between two looks at the keys, and two writings of the status

NOT_STARTED: dict[str, Any] = {
    "connected": False,
    "pending_rows": 0,
    "last_ack_age_s": None,
    "refused": None,
    "weights_version": -1,
    "weights_rejected": 0,
    "rows_left_out": 0,
    "round_trip_ms": None,
    "learner": {},
}
"""Keys of `LinkClient.status()`, as they are before the first connection."""


class LinkClient:
    """Replicates one store to the learner for as long as it runs; reconnects for ever.

    Args:
        config: address and bounds.
        keys: this process's pair; the learner's public key must be among them.
        spec: contract of the run.
        store_path: the actor's store file.
        run, actor: identity of its rows.
        pairing: reads the keys again; the learner's may come later, or become another one. None =
            `keys` are what they will be.
        status_file: where `status` is written every second, for other processes.

    Raises:
        LinkError: the learner's key is missing, and no pairing will bring it.
    """

    def __init__(
        self,
        config: LinkConfig,
        keys: Keys,
        spec: Spec,
        store_path: Path | str,
        *,
        run: str = "run",
        actor: str = ONLY_ACTOR,
        pairing: Callable[[], Keys] | None = None,
        status_file: Path | None = None,
    ) -> None:
        if pairing is None:
            keys.public_of("learner")  # a missing key is reported here, not in a thread
        self._config, self._keys, self._spec, self._path = config, keys, spec, Path(store_path)
        self._run_name, self._actor = run, actor
        self._pairing, self._status_file = pairing, status_file
        self._next_episode = 0
        self._looked_s = self._written_s = self._removed_s = -math.inf
        self._has_removed = False
        self._unsent = 0  # rows, while no learner is known
        self._stopping = threading.Event()
        self._session: LinkSession | None = None
        self._word: dict[str, Scalar] = {}
        self._failure: RobotRLError | None = None  # why the thread has ended
        self._trouble: StoreError | None = None  # why the thread begins anew; logged once
        self._thread = threading.Thread(target=self._run, name="link-client", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once, connected or not."""
        self._thread.start()

    def stop(self, drain_s: float = 2.0) -> None:
        """Give rows up to `drain_s` to reach a connected learner, then end; twice is fine.

        What remains is in the store and is sent by the next process.
        """
        if self._thread.is_alive() and self.status()["connected"]:
            self.drain(drain_s)
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10.0)

    def newest_weights(self) -> Weights | None:
        """Newest verified weights, None before any. Never blocks.

        After a learner restarts from an older checkpoint their version may be lower than before.
        """
        session = self._session  # the thread may set it to None at any time
        return None if session is None else session.weights

    def next_episode(self, timeout_s: float = 0.0) -> int:
        """First number by which no learner that was heard knows an episode of this actor.

        An actor whose store was lost, or cut by a failing disk, must not use a number again. Waits
        up to `timeout_s` for a learner's word; 0 while none has been heard.
        """
        deadline_s = time.monotonic() + timeout_s
        while self._failure is None:
            session = self._session
            if session is not None and session.next_episode is not None:
                self._next_episode = max(self._next_episode, session.next_episode)
                break
            if time.monotonic() >= deadline_s:
                break
            time.sleep(0.005)
        return self._next_episode

    def status(self) -> dict[str, Any]:
        """State of the link; keys as in `NOT_STARTED`, `learner` = the learner's own figures."""
        session, problem = self._session, self._failure
        status = NOT_STARTED | {"pending_rows": self._unsent}
        status |= {} if session is None else session.status
        if problem is None and session is None:
            problem = self._trouble
        if problem is not None:
            status |= {"connected": False, "refused": str(problem)}
        return status

    def tell(self, **values: Scalar) -> None:
        """Send `values` to the learner with each status from now on; see `LinkServer.told`."""
        self._word |= values
        session = self._session
        if session is not None:
            session.word = dict(self._word)

    def raise_if_refused(self) -> None:
        """Raise the `LinkError` that a person must act on, if there is one.

        A learner that is away, or a disk that is busy or full for now, on either side, is no error:
        rows wait in the store.
        """
        if self._failure is not None:
            raise self._failure
        session = self._session
        refusal = None if session is None else session.refusal
        if refusal is not None and refusal.permanent:
            raise refusal.error

    def drain(self, timeout_s: float) -> bool:
        """Wait until every row committed before this call is acknowledged; False on time-out."""
        deadline_s = time.monotonic() + timeout_s
        watched: LinkSession | None = None
        began = 0
        while time.monotonic() < deadline_s and self._failure is None:
            session = self._session
            if session is None:
                watched = None
            elif session is not watched:
                watched, began = session, session.ticks
            elif session.ticks >= began + 2 and session.status["pending_rows"] == 0:
                return True
            time.sleep(0.005)
        return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._replicate()
                except StoreError as error:  # a long commit of the control loop's rows, a full disk
                    self._wait_out(error)
        except Exception as error:  # a thread that ends silently would look like a slow network
            log.exception("the link has stopped")
            own = isinstance(error, RobotRLError)
            self._failure = (
                error
                if own
                else LinkError("the link has stopped", got=repr(error), fix="see the log")
            )

    def _replicate(self) -> None:
        """Replicate until `stop`, until the store fails, or until there is another learner."""
        with Store(self._path, spec=self._spec) as store:
            while "learner" not in self._keys.peers.values():
                self._unsent = store.pending_count()
                self._write_status()
                if self._stopping.wait(self._config.poll_s):
                    return
                self._renew()
            parts = (self._config, self._keys, self._spec, store)
            session = LinkSession(*parts, run=self._run_name, actor=self._actor)
            session.word = dict(self._word)
            self._session = session
            try:
                while not self._stopping.is_set() and not self._renew():
                    session.tick()
                    self._next_episode = max(self._next_episode, session.next_episode or 0)
                    self._write_status()
                    if session.status["connected"]:
                        self._make_room(store)
            finally:
                session.close()

    def _make_room(self, store: Store) -> None:
        """Remove a few rows that the learner has, if the store holds more than it may.

        Only while the learner is there: it has said that it has what it acknowledged.
        """
        now_s, keep_gb = time.monotonic(), self._config.keep_gb
        if keep_gb is None or now_s < self._removed_s + ROOM_S:
            return
        self._removed_s = now_s
        if store.remove_some(int(keep_gb * 1e9), self._config.keep_episodes):
            if not self._has_removed:
                log.info(
                    "more than %g GB: the oldest practice is removed, the learner has it", keep_gb
                )
            self._has_removed = True

    def _renew(self) -> bool:
        """Read the keys again now and then; True when there is a new learner."""
        now_s = time.monotonic()
        if self._pairing is None or now_s < self._looked_s + LOOK_S:
            return False
        self._looked_s = now_s
        before, self._keys = self._keys, self._pairing()
        return before.peers != self._keys.peers

    def _write_status(self) -> None:
        now_s = time.monotonic()
        if self._status_file is None or now_s < self._written_s + LOOK_S:
            return
        self._written_s = now_s
        fresh = self._status_file.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(self.status()))
            fresh.rename(self._status_file)
        except OSError as error:  # a full disk costs a figure on a screen, no more
            log.warning("the state of the link is not written: %s", error)

    def _wait_out(self, error: StoreError) -> None:
        """Log the error once until rows get through again; wait before the next try."""
        session, self._session = self._session, None
        has_worked = session is not None and session.status.get("last_ack_age_s") is not None
        if self._trouble is None or has_worked:
            log.error("the link begins anew, rows wait in the store: %s", error)
        self._trouble = error
        self._stopping.wait(self._config.backoff_max_s)
