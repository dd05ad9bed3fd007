"""What a person does about each reason for which an arm stands still: for page and terminal.

A reason begins with the name of the check that gave it (`gate.py`, `ros/gate_node.py`).
"""

from __future__ import annotations

LOOK = "look at the arm and its surroundings"
UNREADY = "make the item of the list Ready? well, or accept it there"
UNWATCHED = (
    "nobody could stop the controller in an emergency: start the service that is named,"
    " or see logs/watchdog.log"
)
ADVICE = {
    "force": "free the tool from what it touches, or move it away by hand; then acknowledge (Y)",
    "state": "the arm's state is missing or late: see whether its driver runs, the cable is in and"
    " the computer is not too busy; if the pose jumped, end what else tells it, such as a second"
    " driver; then acknowledge (Y)",
    "controller": f"the controller was stopped: {LOOK}, then acknowledge (Y), which starts it"
    " again, and once more for the gate",
    "clock": f"a clock was set, or the simulator began anew: {LOOK}, then acknowledge (Y)",
    "publishers": "somebody else publishes what only one program may: end the other program"
    " (`ros2 topic info -v` names its node), then acknowledge (Y)",
    "person": "a person stopped or held the arm: whoever did lets it go on (Y after a stop, R after"
    " a hold)",
    "watchdog": f"{UNWATCHED}; the run goes on by itself",
    "arm": f"{UNREADY}; the run goes on by itself",
    "operator_silent": "the device of whoever drove fell silent: press R, then take it up again",
    "operator": "let go of the drive key, and of everything else that is held; then press it again",
    "device": "let go of the drive key, and of everything else that is held; then press it again",
    "command_late": "the program that drives was late: nothing to do if it goes on; otherwise see"
    " logs/actor.log",
    "driver": "the program that drove has ended: it is started again; see logs/actor.log",
    "finite": "the policy gave a number that is none: the run arms again by itself; if it happens"
    " again, see logs/learner.log",
    "joint": "a joint is close to its limit: take over and drive the arm away from it",
    "collision": "the arm would touch what the reason names: take over and drive it away; if"
    " nothing is there, mend the box in the robot file (safety.obstacles)",
    "lease": "another program drives: end it, or wait until it has ended",
    "gate": "the run ends, or its gate is started again: nothing to do",
}
CONTROLLER = "arm: controller"  # how the arm node begins when one of the driver's is not active
IN_A_STOP = {  # which never ends by itself
    "arm": f"{UNREADY}; then acknowledge (Y)",
    CONTROLLER: f"{LOOK}, have the controller started again (controller/resume; Y at the page does"
    " it where the controller was stopped), then acknowledge (Y)",
    "watchdog": f"{UNWATCHED}; then acknowledge (Y)",
}
AT_THE_END = "as far as the tool may go"  # the tool follows no further: the box of the limits
STOPPED = "protective_stop"
ASKED = "waits for a person"  # how the actor begins when a question has stood for a while


def what_to_do(reason: str, *, stopped: bool = False) -> str:
    """What a person does about a reason of the gate; "" where there is nothing to say.

    stopped: it is the reason of a protective stop, which never goes on by itself.
    """
    name, _, rest = reason.partition(":")
    if name == STOPPED:  # acknowledge first (what stopped it)
        return what_to_do(rest.partition("(")[2], stopped=True) or "acknowledge (Y)"
    if not stopped:
        return ADVICE.get(name, "")
    name = CONTROLLER if reason.startswith(CONTROLLER) else name
    return IN_A_STOP.get(name) or ADVICE.get(name, "")


def explained(what: str, reason: str, *, stopped: bool = False) -> str:
    """One line for a log: what happened, why, and what to do about it. stopped: `what_to_do`."""
    todo = what_to_do(reason, stopped=stopped)
    return f"{what}: {reason}." + (f" What to do: {todo}." if todo else "")


def asked(question: str) -> str:
    """One line for a log: a question that a person has not answered for a while."""
    said = "; ".join(question.splitlines())
    return f"{ASKED}: {said}. What to do: F at the page or the keyboard, or call actor/ready"
