# The command line: docker run --rm -u "$(id -u):$(id -g)" -v "$PWD:/work" promptgraft check
FROM python:3.12-slim
COPY . /source
RUN pip install --no-cache-dir "/source[anthropic,openai,metrics,stats]" && rm -rf /source
WORKDIR /work
ENTRYPOINT ["promptgraft"]
