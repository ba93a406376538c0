"""A JAX training loop that reads the loss in every step; recorded with `traceview record`."""

import jax
import jax.numpy as jnp


@jax.jit
def step(weights: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    def loss(w: jax.Array) -> jax.Array:
        return jnp.mean(jnp.tanh(x @ w) ** 2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * gradient, value


def main() -> None:
    weights = jax.random.normal(jax.random.key(0), (4096, 4096))
    x = jax.random.normal(jax.random.key(1), (4096, 4096))
    for number in range(8):
        with jax.profiler.TraceAnnotation(f"step_{number}"):
            weights, value = step(weights, x)
            print(number, float(value))


if __name__ == "__main__":
    main()
