"""Words of SB3, CleanRL, RLlib and Gymnasium, and the lab's own: `docs/coming_from.md` as data.

An error about an unknown key ends with the text: "unknown key; use env.num_envs".
"""

from collections.abc import Mapping

_WORDS = {
    # rollouts, PPO, A2C
    "n_steps": "use agent.algorithm.time_horizon (PPO) or agent.algorithm.training_frequency",
    "num_steps": "use agent.algorithm.time_horizon (PPO) or agent.algorithm.training_frequency",
    "rollout_fragment_length": "use agent.algorithm.time_horizon, or meta.actor_learner",
    "train_batch_size": "use agent.algorithm.time_horizon × env.num_envs frames",
    "train_batch_size_per_learner": "use agent.algorithm.time_horizon × env.num_envs frames",
    "batch_size": "use agent.memory.batch_size, for PPO agent.algorithm.minibatch_size",
    "num_minibatches": "use agent.algorithm.minibatch_size, a size instead of a number",
    "sgd_minibatch_size": "use agent.algorithm.minibatch_size",
    "n_epochs num_epochs update_epochs": "use agent.algorithm.training_epoch",
    "gae_lambda lambda_": "use agent.algorithm.lam",
    "clip_range clip_coef clip_param": "use agent.algorithm.clip_eps_spec.start_val",
    "clip_range_vf vf_clip_param": "use agent.algorithm.clip_vloss, with the ε of the policy",
    "ent_coef": "use agent.algorithm.entropy_coef_spec.start_val, for SAC fixed_alpha",
    "entropy_coeff": "use agent.algorithm.entropy_coef_spec.start_val",
    "vf_coef vf_loss_coeff": "use agent.algorithm.val_loss_coef",
    "normalize_advantage norm_adv": "use agent.algorithm.normalize_advantages",
    "kl_coeff": "not supported: a KL penalty; agent.algorithm.target_kl ends the epochs early",
    "max_grad_norm grad_clip": "use agent.net.clip_grad_val",
    # optimizers
    "lr learning_rate": "use agent.net.optim_spec.lr",
    "policy_lr actor_lr": "use agent.net.actor_optim_spec.lr",
    "q_lr critic_lr": "use agent.net.critic_optim_spec.lr",
    "anneal_lr": "use agent.net.lr_scheduler_spec: LinearToZero",
    "lr_schedule": "use agent.net.lr_scheduler_spec",
    # replay, DQN, SAC
    "buffer_size capacity": "use agent.memory.max_size",
    "replay_buffer_config": "use agent.memory",
    "learning_starts": "use agent.algorithm.training_start_step",
    "num_steps_sampled_before_learning_starts": "use agent.algorithm.training_start_step",
    "train_freq": "use agent.algorithm.training_frequency, in frames of all copies",
    "train_frequency": "use agent.algorithm.training_frequency",
    "gradient_steps": "use agent.algorithm.training_batch_iter",
    "training_intensity": "use agent.algorithm.update_to_data × agent.memory.batch_size",
    "tau": "use agent.net.polyak_coef, with agent.net.update_type polyak",
    "target_update_interval": "use agent.net.update_frequency, with agent.net.update_type replace",
    "target_network_frequency target_network_update_freq": "use agent.net.update_frequency",
    "exploration_fraction": "use agent.algorithm.explore_var_spec.end_step, in frames",
    "exploration_initial_eps start_e": "use agent.algorithm.explore_var_spec.start_val",
    "exploration_final_eps end_e": "use agent.algorithm.explore_var_spec.end_val",
    "n_step": "use agent.algorithm.num_step_returns",
    "double_q": "use the agent.algorithm.name DoubleDQN",
    "dueling": "use the agent.net.type DuelingMLPNet or DuelingConvNet",
    "policy_frequency": "use agent.algorithm.policy_delay",
    "autotune": "use agent.algorithm.fixed_alpha null",
    "initial_alpha": "not supported: α begins at 1; agent.algorithm.fixed_alpha keeps it fixed",
    "action_noise": "not supported: SoftActorCritic and CrossQ draw from their policy",
    "use_sde": "not supported: state-dependent exploration",
    # nets
    "policy_kwargs": "use agent.net",
    "net_arch": "use agent.net.hid_layers, actor_hid_layers and critic_hid_layers",
    "fcnet_hiddens": "use agent.net.hid_layers",
    "activation_fn fcnet_activation": "use agent.net.hid_layers_activation",
    "ortho_init": "use agent.net.init_fn orthogonal_",
    "share_features_extractor vf_share_layers": "use agent.net.shared",
    "normalize_images": "use agent.net.normalize",
    "conv_filters": "use agent.net.conv_hid_layers",
    "use_lstm": "use the agent.net.type RecurrentNet",
    "lstm_cell_size": "use agent.net.rnn_hidden_size",
    "max_seq_len": "use agent.net.seq_len",
    "device cuda": "use agent.net.gpu",
    # environments
    "env_id": "use env.name",
    "n_envs num_envs_per_env_runner": "use env.num_envs",
    "vec_env_cls": "use env.vectorization_mode",
    "norm_obs": "use env.normalize_obs",
    "norm_reward": "use env.normalize_reward",
    "n_stack": "use env.frame_op_len, with env.frame_op",
    "max_episode_steps": "use env.max_t",
    "env_kwargs env_config": "use keys of env itself",
    "env_wrapper": "use env.wrappers",
    # the run
    "total_timesteps": "use env.max_frame",
    "seed": "use meta.random_seed, or --seed",
    "num_env_runners": 'use meta.max_session, with meta.distributed "actor_learner"',
    "num_learners": 'use meta.max_session, with meta.distributed "all_reduce"',
    "eval_freq": "use meta.eval_frequency, with meta.rigorous_eval",
    "n_eval_episodes": "use meta.rigorous_eval",
    "save_freq": "use meta.save_interval, in seconds",
    "capture_video": "use meta.record_video",
}

FOREIGN: Mapping[str, str] = {
    word: text for words, text in _WORDS.items() for word in words.split()
}
