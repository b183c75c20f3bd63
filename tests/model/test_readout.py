import pytest
import torch

from rnnsearch.model.kernels import kernels_for
from rnnsearch.model.readout import Readout

CPU = torch.device("cpu")


@pytest.mark.usefixtures("kernels")
def test_trap_12_maxout_takes_the_larger_of_two_neighbours() -> None:
    readout = Readout(4, 1, 1, 2, 3, rank=None).double()
    with torch.no_grad():
        readout.Uo.copy_(torch.eye(4))
    state = torch.tensor([[1.0, 9.0, 2.0, 3.0]], dtype=torch.float64)
    nothing = torch.zeros(1, 1, dtype=torch.float64)
    features = readout.features(kernels_for(CPU), "float64", state, nothing, nothing)
    assert features.tolist() == [[9.0, 3.0]]


@pytest.mark.usefixtures("kernels")
def test_a_factored_output_is_the_product_of_its_factors() -> None:
    generator = torch.Generator().manual_seed(0)
    readout = Readout(4, 3, 5, 2, 7, rank=3).double()
    with torch.no_grad():
        for parameter in readout.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    full = Readout(4, 3, 5, 2, 7, rank=None).double()
    shared = {name: value for name, value in readout.state_dict().items() if name not in ("Wo1", "Wo2")}
    full.load_state_dict({**shared, "Wo": readout.Wo2 @ readout.Wo1})
    parts = [torch.randn(6, size, generator=generator, dtype=torch.float64) for size in (4, 3, 5)]
    factored, whole = (
        made.features(kernels_for(CPU), "float64", *parts) @ made.output.t() for made in (readout, full)
    )
    torch.testing.assert_close(factored, whole, rtol=0, atol=1e-12)
