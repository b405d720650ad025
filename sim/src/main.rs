//! stub
use shootdown_sim::*;
fn main() {
    let mut args = std::env::args().skip(1);
    let backend = BackendKind::from_name(&args.next().unwrap()).unwrap();
    let cpus = args.next().unwrap().parse().unwrap();
    let start: u64 = args.next().unwrap().parse().unwrap();
    let runs: u64 = args.next().unwrap().parse().unwrap();
    let t = std::time::Instant::now();
    let mut steps = 0;
    let mut flushes = 0;
    for seed in start..start + runs {
        let mut spec = Spec::new(backend, cpus, seed);
        let outcome = run(&spec);
        steps += outcome.tally.steps; flushes += outcome.tally.flushes;
        if let Some(f) = outcome.failure {
            println!("seed {seed}: {} ({} steps)", f.message, outcome.tally.steps);
            if runs == 1 { spec.trace = true; println!("{}", run(&spec).trace.unwrap()); }
        }
    }
    println!("{runs} runs, {steps} steps, {flushes} flushes, {:?}", t.elapsed());
    for (b, n) in shootdown::coverage::take_coverage() { println!("{b:?} {n}"); }
}
