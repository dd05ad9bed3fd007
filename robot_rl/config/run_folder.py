"""Names of the files in a run folder."""

STORE = "store.sqlite"  # of a lockstep run
ACTOR_STORE = "actor.sqlite"  # of a run over ROS 2: the actor's side, always complete
LEARNER_STORE = "learner.sqlite"  # the learner's side
ARMS = "arms"  # of a run with several arms: a run folder for each
METRICS = "metrics.jsonl"  # one line for each episode
LEARNER_METRICS = "learner.jsonl"
EVALUATION = "eval.json"
POLICY = "policy.safetensors"
CAMERAS = "cameras.json"  # size, crop and intrinsics of each camera of a run over ROS 2
PREFLIGHT = "preflight.json"  # what was found of an arm's driver before the start
