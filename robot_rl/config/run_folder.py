"""Names of the files in a run folder."""

STORE = "store.sqlite"  # of a lockstep run
ACTOR_STORE = "actor.sqlite"  # of a run over ROS 2: the actor's side; old practice may be removed
LEARNER_STORE = "learner.sqlite"  # the learner's side
ARMS = "arms"  # of a run with several arms: a run folder for each
METRICS = "metrics.jsonl"  # one line for each episode
LEARNER_METRICS = "learner.jsonl"
EVALUATION = "eval.json"
POLICY = "policy.safetensors"
CHECKPOINTS = "checkpoints"  # folder: everything that the learner goes on from
CAMERAS = "cameras.json"  # size, crop and intrinsics of each camera of a run over ROS 2
LINK = "link.json"  # state of the link to a learner on another machine, every second
PAIRING = "pairing.json"  # on the learner's machine: where it listens, and for which robot
PREFLIGHT = "preflight.json"  # what was found of an arm's driver before the start
PLAN = "plan.json"  # what a deployment or a comparison is to do
DEPLOYMENT = "deploy.json"  # what a deployment has come to
COMPARISON = "comparison.json"  # what a comparison has come to; written when it has ended
SCENE_PICTURES = "scene"  # folder: pictures by which a person restores a scene
