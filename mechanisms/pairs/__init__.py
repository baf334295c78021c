"""The two neighbouring datasets: how they are held, built from gradients, records or images, and given canaries."""
