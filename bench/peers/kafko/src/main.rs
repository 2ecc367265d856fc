//! Appends to kafko as it is told to: each line `RECORDS CALLS` of standard input is that many calls with that many
//! records each, one awaited after the other, and answered with the nanoseconds that they took together.
//! One record goes by `send`, more go by `send_batch`. The offset of every answer is checked.
use bytes::Bytes;
use kafko::{Kafko, Producer};
use std::io::{stdin, stdout, BufRead, Write};
use std::time::Instant;

const VALUE_BYTES: usize = 256;

async fn call(producer: &Producer, value: &Bytes, records: u64) -> kafko::Result<u64> {
    if records == 1 {
        return Ok(producer.send(None, value.clone()).await?.offset());
    }
    let batch = vec![(None, value.clone()); records as usize];
    let positions = producer.send_batch(batch).await?;
    Ok(positions.last().expect("an answer for each record").offset())
}

#[tokio::main]
async fn main() -> kafko::Result<()> {
    let directory = std::env::args().nth(1).expect("a directory");
    let broker = Kafko::open(&directory).await?;
    broker.create_topic("bench").await?;
    let producer = broker.producer_for("bench").await?;
    let value = Bytes::from(vec![0u8; VALUE_BYTES]);
    let mut written = 0;
    println!("ready");
    for line in stdin().lock().lines() {
        let line = line.expect("a line");
        let told: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a count")).collect();
        let begun = Instant::now();
        for _ in 0..told[1] {
            written += told[0];
            assert_eq!(call(&producer, &value, told[0]).await?, written - 1, "the last offset of a call");
        }
        println!("{}", begun.elapsed().as_nanos());
        stdout().flush().expect("somebody listens");
    }
    broker.shutdown().await
}
