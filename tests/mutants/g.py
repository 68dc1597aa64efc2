"""Wrong implementations for the claims of section G: structure-preserving GANs."""

from __future__ import annotations

from tests.mutants import Mutant

NOT_AVERAGED = {"lib.gans.plane_games.averaged": lambda _: lambda players, action: players}
NO_COIN = {'SMART = "plain/plain", "equivariant/invariant"': 'SMART = "plain/plain", "plain/invariant"'}
SUPREMA = {"groups": ["C4", "pentagon"]}

MUTANTS = [
    Mutant(
        "G1",
        "invariant discriminators with another Lipschitz constant and another kernel",
        ("relative_gap",),
        of_run="suprema",
        run={
            "dual_values(lipschitz * limits[None]": "dual_values(0.7 * limits[None]",
            "np.linalg.eigh(np.exp(-((d / width)": "np.linalg.eigh(np.exp(-((d / 0.5)",
        },
        run_parameters=SUPREMA,
        slow=True,
    ),
    Mutant(
        "G1",
        "Wasserstein-1 over invariant functions, limited only within the images of one element",
        ("relative_gap",),
        of_run="suprema",
        run={"d.reshape(len(d) // 5, 5, -1, 5).min((0, 2))": "d[:5, :5]"},
        run_parameters=SUPREMA,
        slow=True,
    ),
    Mutant(
        "G2",
        "a test whose true level is .15",
        ("rejections_outside_interval",),
        page={"int((values <= 0.05).sum())": "int((values <= 0.15).sum())"},
        parameters={"steps": 30},
        slow=True,
    ),
    Mutant(
        "G2",
        "an equivariant generator whose first layer is free",
        ("generator_residual", "rejections_outside_interval"),
        lib={"lib.gans.plane_games.make_generator": lambda right: lambda _, *rest: right("incomplete", *rest)},
        parameters={"steps": 30},
        slow=True,
    ),
    Mutant(
        "G3",
        "laws that are not symmetrised",
        ("relative_gap",),
        of_run="suprema",
        run={"drawn @ S))": "drawn))"},
        run_parameters=SUPREMA,
        parameters={"seeds": 5},
        slow=True,
    ),
    Mutant(
        "G3",
        "no discriminator is averaged",
        ("collapse_share",),
        lib=NOT_AVERAGED,
        parameters={"seeds": 5},
        slow=True,
    ),
    Mutant("G4", "no discriminator is averaged", ("blind_ratio",), lib=NOT_AVERAGED, slow=True),
    Mutant(
        "G4",
        "distances up to the group",
        ("weak_link_gap", "blind_ratio", "tie_share"),
        page={
            'pd.concat([scores["w1"], turned_too])': 'pd.concat([scores["w1_invariant"], turned_too])',
            'scores["w1"].groupby': 'scores["w1_invariant"].groupby',
        },
        slow=True,
    ),
    Mutant(
        "G5",
        "the coin of the generator is forgotten",
        ("ordering_gap",),
        page={
            'SMART = "plain/plain", "equivariant/invariant"': 'SMART = "plain/plain", "plain/invariant"',
            "contest(law, games, SIZES)": "contest(law, {n: games[n] for n in (PLAIN, SMART)}, [12])",
            "contest(straight, plain_and_smart, [12, 1200])": "contest(straight, plain_and_smart, [12])",
        },
        slow=True,
    ),
    Mutant("G6", "the coin of the generator is forgotten", ("median_gap",), page=NO_COIN, slow=True),
    Mutant(
        "G7",
        "a missing factor of two in the Jensen–Shannon divergence",
        ("closed_form_error",),
        page={'"jsd": kl - middle,': '"jsd": (kl - middle) / 2,'},
        parameters={"seeds": 2},
        slow=True,
    ),
    Mutant(
        "G7",
        "a Sinkhorn divergence that keeps its entropic bias",
        ("closed_form_error",),
        page={"return xy - xx / 2 - yy / 2": "return xy"},
        parameters={"seeds": 2},
        slow=True,
    ),
    Mutant(
        "G8",
        "the coin of the generator is forgotten",
        ("sample_factor", "parameter_factor"),
        page={"SMART: replace(base, pairing=SMART),": 'SMART: replace(base, pairing="plain/invariant"),'},
        slow=True,
    ),
]
