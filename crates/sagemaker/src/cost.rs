//! What a job costs at most, from prices that the user gives. AWS's prices are not known here, and none is made up.

use std::fmt;

use stokehold_jobs::Job;

use crate::{Plan, SageMakerError};

/// An upper bound of what the machines of a job, or of several jobs of its kind, cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// How many jobs there are at most.
    pub jobs: u64,
    /// The machines of each.
    pub machines: Vec<PricedMachines>,
    /// For how long the job may run, seconds.
    pub run_seconds: u64,
    /// For how long the machines are kept for a next job, seconds.
    pub kept_seconds: u64,
    /// Whether they are spot machines, of which SageMaker bills less.
    pub is_spot: bool,
}

/// Machines of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct PricedMachines {
    /// Their type.
    pub instance_type: String,
    /// How many.
    pub count: u64,
    /// What one costs in an hour, in the currency of the file.
    pub price: f64,
}

impl Cost {
    /// The bound for a job: machines x the longest time x the price of an hour.
    ///
    /// # Errors
    /// There is no section `[sagemaker]`, or the type of machine whose price is not given, with what to write.
    pub fn of(job: &Job) -> Result<Self, SageMakerError> {
        let section = Plan::section(job)?;
        // One machine of the job's type where there are no groups.
        let usual = section.price.or(job.spot.as_ref().and_then(|spot| spot.price));
        let priced = |kind: &str, count: u64, price: Option<f64>, key: &str| match price {
            Some(price) => Ok(PricedMachines {
                instance_type: kind.to_owned(),
                count,
                price,
            }),
            None => Err(SageMakerError::Input(format!(
                "no estimate of the cost: {key} price = .., what a machine {kind} costs in an hour there, is not given"
            ))),
        };
        let machines = match section.instance_groups.as_slice() {
            [] => vec![priced(
                &job.instance_type,
                job.instances as u64,
                usual,
                "[sagemaker]",
            )?],
            groups => groups
                .iter()
                .map(|group| {
                    let (count, price) = (u64::from(group.instances), group.price.or(section.price));
                    priced(
                        &group.instance_type,
                        count,
                        price,
                        "[[sagemaker.instance-groups]]",
                    )
                })
                .collect::<Result<_, _>>()?,
        };
        Ok(Self {
            jobs: 1,
            machines,
            run_seconds: job.max_run_seconds,
            kept_seconds: section.keep_alive_seconds.map_or(0, u64::from),
            is_spot: job.spot.is_some(),
        })
    }

    /// The bound for this many jobs of this kind, such as the trials of a study.
    #[must_use]
    pub fn of_jobs(self, jobs: u64) -> Self {
        Self { jobs, ..self }
    }

    /// The bound, in the currency of the prices.
    #[must_use]
    pub fn most(&self) -> f64 {
        let hours = (self.run_seconds + self.kept_seconds) as f64 / 3600.0;
        let each = self.machines.iter();
        let one: f64 = each
            .map(|machines| machines.count as f64 * machines.price * hours)
            .sum();
        self.jobs as f64 * one
    }
}

/// The bound and what it assumes, in some lines.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> = self
            .machines
            .iter()
            .map(|one| {
                format!(
                    "{} {} at {} an hour each",
                    one.count, one.instance_type, one.price
                )
            })
            .collect();
        let hours = |seconds: u64| format!("{} s = {:.2} h", seconds, seconds as f64 / 3600.0);
        write!(
            f,
            "cost: at most {}: {}{}, for max-run-seconds = {}",
            money(self.most()),
            match self.jobs {
                1 => String::new(),
                jobs => format!("{jobs} jobs, each of "),
            },
            each.join(" and "),
            hours(self.run_seconds)
        )?;
        if self.kept_seconds > 0 {
            write!(
                f,
                ", and kept for keep-alive-seconds = {}",
                hours(self.kept_seconds)
            )?;
        }
        if self.is_spot {
            write!(
                f,
                "; spot machines cost less, how much is known only afterwards, so this is the full price"
            )?;
        }
        write!(
            f,
            "\nnot in it: the 120 s of a script that is stopped, disks, buckets, file systems, logs and transfers"
        )
    }
}

/// Two digits after the point; more for what would be 0.
fn money(amount: f64) -> String {
    if amount >= 0.1 {
        format!("{amount:.2}")
    } else {
        format!("{amount:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stokehold_jobs::{EntryPoint, Spot};

    fn job() -> Job {
        let mut job = Job::new(EntryPoint::Python("train.py".to_owned()));
        job.instance_type = "ml.g5.xlarge".to_owned();
        job.instances = 2;
        job.max_run_seconds = 5400;
        job.sagemaker = Some("role = \"arn\"\nprice = 1.5".parse().unwrap());
        job
    }

    #[test]
    fn the_bound_is_machines_times_hours_times_the_price() {
        let mut job = job();
        let cost = Cost::of(&job).unwrap();
        assert_eq!(cost.most(), 4.5);
        assert_eq!(
            cost.to_string(),
            "cost: at most 4.50: 2 ml.g5.xlarge at 1.5 an hour each, for max-run-seconds = 5400 s = 1.50 h\n\
             not in it: the 120 s of a script that is stopped, disks, buckets, file systems, logs and transfers"
        );
        let section = job.sagemaker.as_mut().unwrap();
        section.insert("keep-alive-seconds".to_owned(), 1800.into());
        assert_eq!(Cost::of(&job).unwrap().most(), 6.0);
        let several = Cost::of(&job).unwrap().of_jobs(10);
        assert_eq!(several.most(), 60.0);
        assert!(
            several
                .to_string()
                .starts_with("cost: at most 60.00: 10 jobs, each of 2 ml.g5.xlarge at 1.5"),
            "{several}"
        );
        let text = Cost::of(&job).unwrap().to_string();
        assert!(
            text.contains("at most 6.00") && text.contains("kept for keep-alive-seconds = 1800 s = 0.50 h"),
            "{text}"
        );
    }

    #[test]
    fn the_price_of_spot_is_the_full_one_and_that_of_the_section_comes_first() {
        let mut job = job();
        job.spot = Some(Spot {
            price: Some(3.0),
            spot_price: Some(1.0),
            ..Spot::default()
        });
        assert_eq!(Cost::of(&job).unwrap().most(), 4.5);
        job.sagemaker.as_mut().unwrap().remove("price");
        let cost = Cost::of(&job).unwrap();
        assert_eq!(cost.most(), 9.0);
        assert!(cost.to_string().contains("spot machines cost less"), "{cost}");
    }

    #[test]
    fn groups_have_their_own_prices() {
        let mut job = job();
        let group = "{ name = \"a\", instance-type = \"ml.c5.xlarge\", instances = 4 }";
        let priced = group.replace(" }", ", price = 0.25 }");
        let text = format!("role = \"arn\"\nprice = 1.5\ninstance-groups = [{group}, {priced}]");
        job.sagemaker = Some(text.parse().unwrap());
        assert_eq!(Cost::of(&job).unwrap().most(), 1.5 * (4.0 * 1.5 + 4.0 * 0.25));
    }

    #[test]
    fn without_a_price_nothing_is_estimated() {
        let mut job = job();
        job.sagemaker.as_mut().unwrap().remove("price");
        let error = Cost::of(&job).unwrap_err().to_string();
        assert!(
            error.contains("[sagemaker] price = .., what a machine ml.g5.xlarge costs"),
            "{error}"
        );
    }
}
