"""What to change after a training whose numbers were no longer finite."""

from collections.abc import Iterable, Iterator

from slm_lab.spec.schema.agent import optimizer_paths
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.result import SessionResult


def what_to_change(spec: Spec, ends: Iterable[SessionResult]) -> str:
    """One line of advice for a training whose loss or gradients are no longer
    finite."""
    fix = " or ".join(_changes(spec))
    for end in ends:
        _, is_at_fault, values = str(end.error).partition("the environment gave")
        _, is_too_large, keys = values.partition("\n")[0].partition(" by ")
        if is_too_large:
            fix = f"set {keys}"
        elif is_at_fault:
            fix = "the environment must give finite numbers only"
    return (
        "resuming would repeat it, because a resume cannot change what led to numbers "
        f"that are not finite. Start a new run: {fix}"
    )


def _changes(spec: Spec) -> Iterator[str]:
    """Changes to try, the most promising first, each with its key and current value."""
    for path, optimizer in optimizer_paths(spec.agent.net, spec.agent.critic_net):
        rate = optimizer.args.get("lr")
        if rate is not None:
            yield f"lower {path}.lr = {rate:g}"
    for key, net in spec.agent.nets.items():
        if net.clip_grad_val is None:
            yield f"limit gradients with agent.{key}.clip_grad_val (null; 0.5 is usual)"
        else:
            yield f"lower agent.{key}.clip_grad_val = {net.clip_grad_val:g}"
    if not spec.env.normalize_reward and spec.env.reward_scale is None:
        yield "scale rewards (env.normalize_reward, env.reward_scale)"
