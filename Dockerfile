FROM python:3.11-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /source
COPY constraints.txt ./
RUN pip install --no-cache-dir -c constraints.txt --extra-index-url ${TORCH_INDEX} torch
COPY pyproject.toml MANIFEST.in README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir -c constraints.txt '.[train]'
RUN useradd --create-home tokenpo && mkdir /work && chown tokenpo /work
USER tokenpo
WORKDIR /work
ENTRYPOINT ["tokenpo"]
CMD ["train", "quickstart"]
