"""An optimizer without global hooks."""


class Optimizer:
    def step(self):
        pass
