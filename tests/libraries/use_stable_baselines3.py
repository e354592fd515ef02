# tests/libraries/use_stable_baselines3.py: PPO of stable-baselines3 on a small environment. The devices draw different actions, so the
# environment ignores them, and the value network is compared.
import torch

from tests.libraries.harness import Side, Tensors, parameters, program


@program("stable-baselines3", "PPO: the value network after three updates, compiled")
def ppo(side: Side) -> Tensors:
    import gymnasium
    import numpy
    from stable_baselines3 import PPO

    class Steps(gymnasium.Env):  # type: ignore[misc]
        observation_space = gymnasium.spaces.Box(-1, 1, (4,), numpy.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)

        def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
            self.count = 0
            return self.observation(), {}

        def observation(self):  # type: ignore[no-untyped-def]
            return numpy.sin(numpy.arange(4) + self.count).astype("float32")

        def step(self, action):  # type: ignore[no-untyped-def]
            self.count += 1
            return self.observation(), float(numpy.cos(self.count)), self.count == 16, False, {}

    torch.manual_seed(0)
    made = PPO(
        "MlpPolicy", Steps(), n_steps=32, batch_size=32, n_epochs=3, max_grad_norm=1e9, device=side.device, verbose=0
    )
    made.policy.mlp_extractor.forward = side.compiled(made.policy.mlp_extractor.forward)
    made.learn(32)
    moved = torch.from_numpy(Steps().reset()[0])[None].to(made.device)
    with torch.no_grad():
        value = made.policy.predict_values(moved)
    return [value, *parameters(made.policy.mlp_extractor.value_net), *parameters(made.policy.value_net)]
